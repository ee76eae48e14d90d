"""Where things lie in a checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TRAIN = str(Path(__file__).with_name("train_script.py"))
