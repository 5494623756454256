"""What the stand-ins of unit tests keep: `emitted`, `log`, `progress`, `store`, `index`, `tasks`, `config`, …

    from toolhold import testing

    testing.standin.config = {"colour": "red"}
    testing.standin.reset()
"""

from ._host import standin

__all__ = ["standin"]
