#include "apply/ident.h"

void ident_of(const struct stat *st, struct ident *ret)
{
	*ret = (struct ident){.there = true,
			      .mode = st->st_mode,
			      .uid = st->st_uid,
			      .gid = st->st_gid,
			      .dev = st->st_dev,
			      .ino = st->st_ino,
			      .size = S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
			      .mtime = st->st_mtim,
			      .ctime = st->st_ctim};
}

bool ident_is(const struct ident *a, const struct ident *b)
{
	if (a->there != b->there || a->dev != b->dev || a->ino != b->ino ||
	    (a->mode & S_IFMT) != (b->mode & S_IFMT))
		return false;
	return S_ISDIR(a->mode) || (a->size == b->size && ident_time_same(&a->mtime, &b->mtime));
}

bool ident_same(const struct ident *a, const struct ident *b)
{
	return ident_is(a, b) && a->mode == b->mode && ident_time_same(&a->mtime, &b->mtime) &&
	       ident_time_same(&a->ctime, &b->ctime);
}
