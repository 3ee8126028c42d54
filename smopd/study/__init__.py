"""Evidence: grids of runs, statistics over seeds and items, tables, figures, the report and its audit."""
