"""The methods that one-bit votes are compared with, each written from its paper."""

from lioncub.tools.study.baselines.demo import DeMo
from lioncub.tools.study.baselines.dgc import DGC
from lioncub.tools.study.baselines.diloco import DiLoCo
from lioncub.tools.study.baselines.ef_sign import EFSign
from lioncub.tools.study.baselines.global_adamw import GlobalAdamW
from lioncub.tools.study.baselines.global_lion import GlobalLion
from lioncub.tools.study.baselines.powersgd import PowerSGD
from lioncub.tools.study.baselines.sign_momentum import SignMomentum
from lioncub.tools.study.baselines.signum import Signum
from lioncub.tools.study.baselines.sparse_loco import SparseLoCo
from lioncub.tools.study.baselines.streaming import StreamingDiLoCo
from lioncub.tools.study.baselines.terngrad import TernGrad

__all__ = [
    "DGC",
    "DeMo",
    "DiLoCo",
    "EFSign",
    "GlobalAdamW",
    "GlobalLion",
    "PowerSGD",
    "SignMomentum",
    "Signum",
    "SparseLoCo",
    "StreamingDiLoCo",
    "TernGrad",
]
