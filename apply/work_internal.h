/*
 * apply/work_internal.h - shared by work.c and undo.c.
 */
#pragma once

#include "apply/work.h"

struct slot_name {
	char s[16];
};
struct slot_name work_slot(const struct step *s);
/* Nothing there is 0, with @ret->there false. */
int work_ident(int dir, const char *name, struct ident *ret) MUST_USE;
int work_place(int dir, const char *name, const struct attrs *a, unsigned what) MUST_USE;
int work_loosen(int dir, const char *name, const struct ident *id) MUST_USE;
int work_rename(int from, const char *name, int to, const char *as, unsigned flags) MUST_USE;
int work_rename_at(int at, int from, const char *name, int to, const char *as,
		   unsigned flags) MUST_USE;
void work_open_dirs(struct work *w);

/* ---- note.c ---- */
/* What is at the step's place when all are taken, with all below what came. */
int work_note(struct work *w, const struct step *s) MUST_USE;
void work_note_time(struct trail *t);
