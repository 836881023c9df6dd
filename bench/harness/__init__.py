"""What bench/run is made of: the rows, the processes that they measure, and the statistics. Standard library only."""
