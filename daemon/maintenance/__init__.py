"""Work on the files of a store in a process of its own: verify, back up, restore, export.

None of it runs inside the daemon. SQLite's locks belong to processes, the event loop is left alone, and all
of it works while no daemon can start.
"""
