"""What a walk over a graph knows of neurons, of values that have them, and of residual sums."""

from __future__ import annotations

from dataclasses import dataclass, field

from joinsum.ist.layers.hidden_layers import Member

__all__ = ["Neurons", "Sum", "Value"]


@dataclass(eq=False)
class Neurons:
    """What is known of the neurons of one or several producers, whose results have been combined element by element.

    reason   why they are not cut by "auto"
    mixed    whether that is known to make their sums or outputs wrong, rather than unknown to be right
    """

    count: int
    producers: list[Member] = field(default_factory=list)
    followers: list[Member] = field(default_factory=list)
    consumers: list[Member] = field(default_factory=list)
    normed: bool = False
    residual: bool = False
    reason: str | None = None
    mixed: bool = False
    parent: Neurons | None = None

    def root(self) -> Neurons:
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    def take_in(self, other: Neurons) -> None:
        """Notes that the neurons of another root are combined with these, each with the one at its place."""
        self.producers += other.producers
        self.followers += other.followers
        self.consumers += other.consumers
        self.normed, self.residual = self.normed or other.normed, self.residual or other.residual
        first_reason = other if other.mixed and not self.mixed else self
        self.reason = first_reason.reason or other.reason
        self.mixed, other.parent = self.mixed or other.mixed, self


@dataclass(eq=False)
class Sum:
    """A residual sum: whether what it gives is normed later, and whether a layer reads it or it is the output."""

    normed: bool = False
    is_read: bool = False


@dataclass(frozen=True)
class Value:
    """The neurons that an axis of a value counts.

    spatial    axes behind the neurons of axis 1; 0 where the neurons are the last axis
    flat       whether that is known to be axis 1, behind the batch
    block      elements of a neuron there; None where that depends on the input's size
    producers  whose results it has that no sum has taken in yet
    sums       that it is made of
    """

    of: Neurons
    spatial: int
    block: int | None = 1
    producers: frozenset[str] = frozenset()
    sums: frozenset[Sum] = frozenset()
    flat: bool = False

    @property
    def second(self) -> bool:
        """Whether the neurons are known to be axis 1."""
        return self.spatial > 0 or self.flat
