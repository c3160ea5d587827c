"""Parts of ``cdk-sagas diff``: what two cloud assemblies deploy, and what survives the change."""
