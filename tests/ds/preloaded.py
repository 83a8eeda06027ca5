"""What every learner and actor imports, imported once. No channel and no server may be made here."""

import main_ds  # noqa: F401
