"""Verified kernels by what they compute: a folder that many processes share."""

from egg.store.claims import Claim, Policy, package_version
from egg.store.entries import (
    Assembly,
    Entry,
    Kind,
    Outline,
    Part,
    Recorded,
    Rejected,
    Seen,
    State,
    Step,
    Tuned,
    assembly_name,
)
from egg.store.folder import Store, is_store, store_folder

__all__ = [
    "Assembly",
    "Claim",
    "Entry",
    "Kind",
    "Outline",
    "Part",
    "Policy",
    "Recorded",
    "Rejected",
    "Seen",
    "State",
    "Step",
    "Store",
    "Tuned",
    "assembly_name",
    "is_store",
    "package_version",
    "store_folder",
]
