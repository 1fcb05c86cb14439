// A CUDA device for a build of torch without CUDA: nothing is computed on it, but autograd finds a device, its
// streams and its context. Loaded before the first backward pass of a process, which counts the devices.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <new>

namespace {

constexpr auto CUDA = c10::DeviceType::CUDA;

struct FakeHooks : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
};

struct FakeGuard : c10::impl::NoOpDeviceGuardImpl<CUDA> {
  c10::Device exchangeDevice(c10::Device) const override { return {CUDA, 0}; }
  c10::Device getDevice() const override { return {CUDA, 0}; }
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(CUDA, 0));
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
};

// torch has already made its hooks object, which has no state: ours takes its place
static_assert(sizeof(FakeHooks) == sizeof(at::CUDAHooksInterface));
const at::CUDAHooksInterface* const hooks =
    new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) FakeHooks();
const FakeGuard guard;
const c10::impl::DeviceGuardImplRegistrar registrar(CUDA, &guard);

}  // namespace
