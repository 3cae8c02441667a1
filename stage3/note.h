/*
 * stage3/note.h - what init tells of a command's end beside its exit code.
 */
#pragma once

#include <stdbool.h>

/* In the child, before the shell is executed: what bash reads first. Negative errno. */
int note_prepare(void);
/* In its place, where the shell is none that would read it: a bash further down would, from a descriptor of its own. */
void note_forget(char **envp);
/* In init, when the command has ended and nothing was asked to end: says what is left running, and with @noted what bash did. */
void note_send(bool noted);
