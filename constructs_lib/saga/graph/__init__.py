"""A saga as a picture: SVG and Mermaid from its description, and one run as a timeline of text."""
