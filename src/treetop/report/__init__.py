"""How is it shown?

Tables, pictures and one HTML page. Imports `experiments` for what it shows; plays nothing.
"""
