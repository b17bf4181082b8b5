"""How is it shown?

Sections of tables and panels, pictures of panels, single decisions in words, and one HTML page of all. Imports
`experiments` and `simulation` for what it shows; plays nothing.
"""
