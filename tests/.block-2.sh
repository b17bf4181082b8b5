treetop evaluate shop --policy strategy=greedy --policy beam=1 --policy strategy=epsilon,epsilon=0.1
