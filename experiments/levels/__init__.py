"""How many quantisation levels a committee needs: the planner's default is read from what this measures."""
