# Meristem on CPUs: the page of the runs in a folder. Build it, make a key, and run it:
#   docker build -t meristem .
#   openssl rand -hex 24 > key.txt
#   docker run --rm -p 8642:8642 -v "$PWD:/work" meristem
FROM python:3.11-slim-bookworm

# libgomp1: OpenMP, which torch needs
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1=12.* \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY meristem ./meristem
# CPU builds of torch: without this index pip also downloads the CUDA libraries, several gigabytes
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" --constraint constraints.txt \
    ".[data,draw,hf,serve,track]" \
    && useradd --create-home --uid 1000 meristem \
    && mkdir /work \
    && chown meristem /work

USER 1000
ENV MERISTEM_CACHE=/work/.meristem
WORKDIR /work
EXPOSE 8642
# /work holds your text, the runs and key.txt, which the browser asks for
CMD ["meristem", "studio", "/work/runs", "--host", "0.0.0.0", "--port", "8642", "--key-file", "/work/key.txt"]
