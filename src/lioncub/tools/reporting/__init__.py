"""What the commands share when they show results: tables, one-file pages, and what a figure depends on."""
