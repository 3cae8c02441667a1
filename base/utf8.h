/*
 * base/utf8.h - which bytes are a character, and which characters may be shown.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the UTF-8 sequence that @p begins with; 0 when it is none, or cut. */
size_t utf8_len(const void *p, size_t n);
/* May a name hold the character @p of @len bytes as it is? Not what moves a terminal's cursor, takes another colour or ends
 * a line, nor what turns the direction of the text after it, so that the name reads as another one. */
bool utf8_shown(const uint8_t *p, size_t len);
