/*
 * mcp/files/text.h - what a file's bytes are: lines, endings, encoding, kind, version; and bytes as
 * text that JSON can carry.
 *
 * Pure functions over (pointer, length); no I/O. Only "\n" ends a line, so that numbers agree between
 * all tools; a "\r" before it belongs to the ending. No charset is ever guessed for writing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Number of lines; bytes after the last "\n" are a line too. */
uint64_t text_count_lines(const uint8_t *p, size_t n);
/* Number of the line (from 1) that holds offset @off. */
uint64_t text_line_at(const uint8_t *p, size_t n, size_t off);

enum text_encoding {
	TEXT_UTF8,
	TEXT_UTF8_BOM,
	TEXT_UTF16LE,
	TEXT_UTF16BE,
	TEXT_UTF32LE,
	TEXT_UTF32BE,
	TEXT_OTHER /* text with bytes that are not UTF-8 */
};
enum text_eol {
	TEXT_EOL_NONE,
	TEXT_EOL_LF,
	TEXT_EOL_CRLF,
	TEXT_EOL_MIXED
};

struct text_shape {
	enum text_encoding encoding;
	enum text_eol eol;
	uint64_t lines;
	uint64_t invalid; /* bytes that are not UTF-8 */
	bool final_newline;
};
struct text_shape text_shape_of(const uint8_t *p, size_t n);
const char *text_encoding_name(enum text_encoding e);
const char *text_eol_name(enum text_eol e);
/* By byte order mark alone. */
enum text_encoding text_bom(const uint8_t *p, size_t n);

/* NUL bytes without a UTF-16/32 mark, or more than 30 % that is not UTF-8, in the first 8 KiB. */
bool text_is_binary(const uint8_t *p, size_t n);
/* "ELF 64-bit", "PNG image 640x480", ...; NULL when nothing is known. Uses @room for what varies. */
const char *text_magic(const uint8_t *p, size_t n, char *room, size_t room_len);

/* Append bytes; invalid ones and NUL as \xNN. */
int text_put_escaped(struct buf *b, const uint8_t *p, size_t n) MUST_USE;
/* Append a name or path so that it stays on its line and says nothing to a terminal: control characters, marks of direction
 * (base/utf8.h) and invalid bytes as \n, \t or \xNN. A name is whatever somebody in the tree wants it to be. */
int text_put_name(struct buf *b, const char *name, size_t n) MUST_USE;
/* UTF-16 or UTF-32 with its mark to UTF-8. Broken units become U+FFFD. */
int text_to_utf8(enum text_encoding e, const uint8_t *p, size_t n, struct buf *out) MUST_USE;
/* The largest cut <= @want that splits no UTF-8 character. */
size_t text_cut(const uint8_t *p, size_t n, size_t want);

/* "812 B", "71.4 KiB". */
int text_put_size(struct buf *b, uint64_t n) MUST_USE;

/* A version token's number: of the content, or of what stat tells about a big file. */
uint32_t text_version(const void *p, size_t n);

int text_base64(const uint8_t *p, size_t n, struct buf *out) MUST_USE;
/* Strict, but blanks and newlines between are skipped. -EINVAL. */
int text_unbase64(const char *s, struct buf *out) MUST_USE;
/* Rows of 16 bytes as hexdump -C writes them; @off is the first byte's offset. */
int text_hex(const uint8_t *p, size_t n, uint64_t off, struct buf *out) MUST_USE;
