"""Reports, comparisons and pictures of runs, made from their files."""
