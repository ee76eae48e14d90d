"""The command line and all behind it. The library never imports it."""
