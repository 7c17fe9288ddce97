"""From measurements of a loaded model to the batching it is served with.

`profile` holds the values that are kept and shown, `policy` decides (pure, no clock), `measure` and
`load` act on a replica.
"""
