"""After a document was written: deleting it, draining the outbox, checking the stores against each other."""
