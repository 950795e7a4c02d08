"""The package's own exceptions: one line each, with the name, the value and what is allowed."""


class CritattnError(Exception):
    """Base of every error that critattn raises on purpose; its text is one line for a person."""


class DomainError(CritattnError, ValueError):
    """A number or an array outside the range where the formula or the computation is defined."""

    @classmethod
    def of(cls, name: str, value: object, allowed: str) -> "DomainError":
        """Build the one-line message `name = value: must be allowed`."""
        return cls(f"{name} = {value!r}: must be {allowed}")


class SpecError(CritattnError, ValueError):
    """A study, an option or a name that cannot be understood."""


class StoreError(CritattnError, RuntimeError):
    """A results store that cannot be read, written or continued."""


class ClusterError(CritattnError, RuntimeError):
    """A cluster that cannot be reached, or that gave up a unit of work."""
