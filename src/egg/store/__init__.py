"""Verified kernels by what they compute: a folder that many processes share."""

from egg.store.claims import Claim, Policy
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
    "store_folder",
]
