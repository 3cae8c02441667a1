/*
 * profile/doc.h - a profile as it is written: parsed and checked, nothing of it resolved yet. Pure: looks at no
 * file. For the files of this folder.
 */
#pragma once

#include "profile/field.h"
#include "profile/profile.h"

enum doc_what {
	DOC_PATH,
	DOC_GLOB,
	DOC_ROOT,
	DOC_MINIMAL,
	DOC_PROJECT,
	DOC_TMPDIR,
	DOC_SLASH_TMP,
	DOC_UNKNOWN,
};

struct doc_entry {
	enum doc_what what;
	enum policy_access access;
	char *text; /* DOC_PATH: clean; DOC_GLOB: as written; DOC_PROJECT: below it, or NULL; DOC_UNKNOWN */
	char where[160];
};

struct doc {
	bool unrestricted, network, landlock;
	bool no_sandbox; /* asks for none, or says that somebody else confines */
	bool has_profile;
	struct doc_entry *entries;
	size_t n;
	char *cwd;        /* clean, or NULL */
	const char *kind; /* for people */
};
void doc_release(struct doc *d);
#define cleanup_doc __attribute__((cleanup(doc_release)))

/* The object of a call: permissionProfile or sandboxPolicy, sandboxCwd. */
int doc_parse_meta(const struct field *f, struct doc *ret) MUST_USE;
/* permissionProfile alone. */
int doc_parse_profile(const struct field *f, struct doc *ret) MUST_USE;
/* sandboxPolicy alone, the older shape. */
int doc_parse_policy(const struct field *f, struct doc *ret) MUST_USE;
/* @text may be NULL; it is copied. */
int doc_add(struct doc *d, const struct field *f, enum doc_what what, enum policy_access access,
	    const char *text) MUST_USE;
