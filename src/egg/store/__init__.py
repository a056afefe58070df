"""Verified kernels by what they compute: a folder that many processes share."""

from egg.store.claims import Claim, Policy, package_version
from egg.store.entries import Entry, Recorded, Rejected, Seen, State, Tuned
from egg.store.folder import Store, store_folder

__all__ = [
    "Claim",
    "Entry",
    "Policy",
    "Recorded",
    "Rejected",
    "Seen",
    "State",
    "Store",
    "Tuned",
    "package_version",
    "store_folder",
]
