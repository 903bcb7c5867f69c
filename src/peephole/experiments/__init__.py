"""The paper's comparison as jobs with records: what is trained, what was found, what holds."""
