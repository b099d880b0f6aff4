"""Which replica of a broker is its master: elections, epochs, in-sync sets."""
