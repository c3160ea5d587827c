"""A saga as a picture: SVG and Mermaid from its description, and what became of one run as a timeline of text."""
