"""Settings of federated training: its rounds and strategy, privacy, and the clients."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from meristem.config.settings import Settings


class FederatedPrivacySettings(Settings):
    """User-level differential privacy: what one owner contributes to a round is bounded and hidden in noise."""

    clip: float = Field(1.0, gt=0)
    """Maximum L2 norm of an update; a longer one is scaled down by the client before it leaves."""
    noise_multiplier: float = Field(1.0, gt=0)
    """Standard deviation of the Gaussian noise on the sum of the updates, as a multiple of `clip`."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """The δ for which ε is computed."""
    epsilon: float | None = Field(None, gt=0)
    """Refuse to start if all rounds together would spend more than this ε."""
    noise_at: Literal["server", "clients"] = "server"
    """Who adds the noise: the server to the sum, or every client its share to its own update."""


class FederatedSettings(Settings):
    """Rounds, strategy, participation and protection of federated training."""

    rounds: int = Field(20, ge=1)
    """Rounds: in each one the clients train from the same weights, and the server combines their updates."""
    local_steps: int = Field(10, ge=1)
    """Optimizer steps that a client takes in a round."""
    strategy: Literal["fedavg", "fedprox", "fedadam"] = "fedavg"
    """fedavg (mean of the updates), fedprox (and a proximal term in the clients), fedadam (Adam on the server)."""
    proximal_mu: float = Field(0.01, ge=0)
    """fedprox: μ of the proximal term μ/2·‖w − w_global‖² of each client's loss."""
    server_learning_rate: float | None = Field(None, gt=0)
    """Factor of the mean update; for fedadam its learning rate. 1, and 0.003 for fedadam, unless set."""
    server_betas: tuple[float, float] = (0.9, 0.99)
    """fedadam: decay rates of the two moment estimates on the server."""
    server_epsilon: float = Field(1e-3, gt=0)
    """fedadam: τ, which is added to the denominator (Reddi et al. 2021)."""
    weighting: Literal["tokens", "equal"] = "tokens"
    """Weight of a client's update: the tokens of its training text, or the same for all."""
    fraction: float = Field(1.0, gt=0, le=1)
    """Share of the clients that are asked in a round, chosen by (seed, round)."""
    min_clients: int = Field(2, ge=1)
    """Fewest answers that a round needs; with fewer the weights stay as they were."""
    max_failed_rounds: int = Field(5, ge=1)
    """Stop after this many rounds in a row without enough answers."""
    timeout: float = Field(600.0, gt=0)
    """Seconds that the server waits for the answers of a round; later ones are not used."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Simulated clients: probability that a client drops out of a round, by (seed, round, client)."""
    evaluate_every: int = Field(5, ge=1)
    """Rounds between evaluations of the global weights on each client's own validation text."""
    save_every: int = Field(1, ge=1)
    """Rounds between checkpoints of the server."""
    secure_aggregation: bool = False
    """The server sees only the sum of the updates, by pairwise masks (Bonawitz et al. 2017)."""
    engine: Literal["auto", "flower", "local"] = "auto"
    """Simulated clients: Flower's ClientApp and ServerApp, or a plain loop; auto is Flower where it is installed."""
    privacy: FederatedPrivacySettings | None = None
    """User-level differential privacy; off unless set."""

    @property
    def server_rate(self) -> float:
        """The learning rate of the server."""
        return self.server_learning_rate or (0.003 if self.strategy == "fedadam" else 1.0)

    @property
    def mu(self) -> float:
        """μ of the proximal term; 0 for strategies without one."""
        return self.proximal_mu if self.strategy == "fedprox" else 0.0

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.secure_aggregation and self.min_clients < 2:
            raise ValueError("secure_aggregation needs min_clients of at least 2: a sum over one client is its update")
        return self


class FederatedClientSettings(Settings):
    """One client: the text of one owner, or a Flower node that an owner has started."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Name of the client: letters, digits, dots, hyphens and underscores."""
    source: str | tuple[str, ...] | None = None
    """The owner's text: a file, folder, glob, builtin:NAME, or several; not set for a node, which knows its own."""
    weight: float | None = Field(None, gt=0)
    """Weight of the client's update; by `weighting` unless set."""
    privacy: FederatedPrivacySettings | None = None
    """The owner's own clipping and noise, added by this client, where they are stricter than the federation's."""


class SuperLinkSettings(Settings):
    """Address of a running Flower SuperLink, to which the clients' nodes are connected."""

    address: str
    """Host and port of its Control API, such as 127.0.0.1:9093."""
    root_certificates: str | None = None
    """Certificate of the authority that signed the SuperLink's certificate (PEM)."""
    insecure: bool = False
    """Connect without TLS, for tests on one machine only."""
