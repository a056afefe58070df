"""Is a generated kernel file right, or a clear error, at every call beside the one it was captured at?"""
