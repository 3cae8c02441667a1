/*
 * fs/core/redo.h - the records in the journal's batches (fs/core/journal.h): the state that an operation left
 * behind, in the form in which a flush would write it. Whoever applies them in order over the last flush, or over
 * a later one that holds some of them already, gets the same tree.
 *
 * Both ends are one build (JOURNAL_VERSION), so that records are structs; readers check every length all the
 * same. A batch is records one behind another, each a head and @len bytes.
 *
 * A frame of the environment's log in the store (fs/core/synclog.c) is a redo_frame and batches, each behind its length in four
 * bytes. Blocks of the journal are told as REDO_BYTES and REDO_PATCH there.
 */
#pragma once

#include <stdint.h>

#include "store/record.h"

enum redo_type {
	/* JOURNAL_CHANGES: one content, under content.change */
	REDO_BLOCK =
		1, /* redo_block: the block is a unit of the journal; never in a log of the store */
	REDO_BYTES, /* redo_bytes, bytes: the whole block */
	REDO_PATCH, /* redo_bytes, bytes: a part of a block, over an earlier record or what the store has */
	REDO_REF,   /* redo_ref: a chunk of the store */
	REDO_HOLE,  /* u64: the block */
	REDO_CUT,   /* u64: nothing is left from this block on */
	REDO_SHAPE, /* redo_shape */
	/* JOURNAL_CHANGES: the tree, under o->lock exclusive, or node.lock for NODE and TIMES */
	REDO_NODE,   /* redo_node, the record's bytes without content */
	REDO_TIMES,  /* redo_times: after a NODE since the last mark */
	REDO_XATTR,  /* redo_xattr, name, value: a big value */
	REDO_PLACE,  /* redo_name, name: of a file with several links; ino 0: not there any more */
	REDO_NAME,   /* redo_name, name: in the directory; ino 0: removed */
	REDO_GONE,   /* u8: its records are to be dropped. The inode has ended */
	REDO_HIDDEN, /* as hidden_encode() writes it, name: in the directory, behind its REDO_NAME */
	REDO_DONE,   /* redo_done: the request that did all this */
	/* JOURNAL_KNOWN, under o->lock exclusive; KNOWN and WRITTEN also under node.lock */
	REDO_KNOWN,   /* nothing: the caller has references */
	REDO_HOST,    /* redo_name, name: an untouched host inode (redo_name.ino is 0) */
	REDO_ORPHAN,  /* redo_node: no name, but still in use */
	REDO_WRITTEN, /* nothing: a shared mapping may exist */
	REDO_FORGOT,  /* nothing: it has none any more, and none of this holds */
	REDO_NUMBER,  /* redo_number */
	REDO_LISTED,  /* redo_listed, name: a directory entry under its cookie */
};

/* Processes, one after another, whose last requests are remembered. */
#define REDO_LIVES 8

/* Frames are read from this version on: a store of format 3 may have them, which its rattan does not open any more. */
#define REDO_FRAME_READ 5

struct redo_frame {
	uint32_t version; /* JOURNAL_VERSION, in the order of the machine's bytes */
	uint32_t pad;
};
struct redo_head {
	uint32_t type, len;
	uint64_t ino;
};

struct redo_block {
	uint64_t idx, name;
	uint32_t len;
	uint32_t part; /* it was this block before, and only bytes [off, off + n) are others */
	uint32_t off, n;
};
struct redo_bytes {
	uint64_t idx;
	uint32_t off, n;
};
struct redo_ref {
	uint64_t idx;
	uint32_t len, pad;
	struct digest digest;
};
struct redo_shape {
	uint64_t size, valid, reserved, reserve_end;
	int64_t data_units;
	uint64_t host_dev, host_ino, host_size;
	int64_t host_sec;
	uint32_t host_nsec;
	uint32_t pristine;
};

enum redo_node_flags {
	REDO_NODE_TMPFILE = 1 << 0,
	REDO_NODE_MAY_WRITE = 1 << 1, /* policy of an inode without a place */
	REDO_NODE_WRITTEN = 1 << 2,
	REDO_NODE_MAY_READ = 1 << 3, /* the same */
};
struct redo_node {
	uint32_t flags, pad;
	store_layer born;
};
struct redo_times {
	int64_t mtime, ctime;
	uint32_t mtime_nsec, ctime_nsec;
};
struct redo_xattr {
	uint32_t name_len, value_len;
	uint32_t present, pad;
};
struct redo_name {
	store_ino parent, ino;
	uint32_t type, len;
};
struct redo_done {
	uint64_t tag, ino;
	int64_t result;
	uint32_t slot, pad;
};
struct redo_number {
	uint64_t dev, ino, salt;
};
struct redo_listed {
	uint64_t cookie;
	uint32_t len, pad;
};
