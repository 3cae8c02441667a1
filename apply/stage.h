/*
 * apply/stage.h - what is new, made ready in the stage.
 */
#pragma once

#include "apply/plan.h"
#include "apply/work.h"

/* For each step that brings something: from the tree. Fills the steps' @now and @new. */
int stage_tree(struct work *w, const struct plan *p, struct diag *diag) MUST_USE;
/* The same from what an earlier run had replaced: slots of @old, a directory's descriptor. */
int stage_old(struct work *w, const struct trail *from, struct diag *diag) MUST_USE;
/* What steps note of what lies in the stage; times and owner are as they are to be. */
int stage_note(struct work *w, struct step *s) MUST_USE;
