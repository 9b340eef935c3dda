"""How many quantisation levels a group needs: the planner's default is read from what this measures."""
