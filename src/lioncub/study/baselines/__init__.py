"""The methods that one-bit votes are compared with, each written from its paper."""

from lioncub.study.baselines.demo import DeMo
from lioncub.study.baselines.dgc import DGC
from lioncub.study.baselines.diloco import DiLoCo
from lioncub.study.baselines.ef_sign import EFSign
from lioncub.study.baselines.global_adamw import GlobalAdamW
from lioncub.study.baselines.global_lion import GlobalLion
from lioncub.study.baselines.graddrop import GradDrop
from lioncub.study.baselines.powersgd import PowerSGD
from lioncub.study.baselines.sign_momentum import SignMomentum
from lioncub.study.baselines.signum import Signum
from lioncub.study.baselines.sparse_loco import SparseLoCo
from lioncub.study.baselines.streaming import StreamingDiLoCo
from lioncub.study.baselines.terngrad import TernGrad

__all__ = [
    "DGC",
    "DeMo",
    "DiLoCo",
    "EFSign",
    "GlobalAdamW",
    "GlobalLion",
    "GradDrop",
    "PowerSGD",
    "SignMomentum",
    "Signum",
    "SparseLoCo",
    "StreamingDiLoCo",
    "TernGrad",
]
