"""How does treetop stand beside what people already use?

dsjson (Vowpal Wabbit), frames (pandas), obp, coba, estimator (scikit-learn), pecos: a module each or a few. None
imports the other's library unless a function cannot do without it. May import everything up to bandit; must not know
the service.
"""
