"""A report in each form that somebody reads: terminal, Markdown, JUnit, badge, HTML."""
