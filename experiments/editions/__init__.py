"""Whether committees that stay train as well as the first edition's, and as SecAgg; slices; steps on the way down."""
