"""`lioncub bench`: how fast this machine runs the library, against what its memory allows."""
