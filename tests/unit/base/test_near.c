/* Hints after a mistyped name. */
#include "base/near.h"
#include "tests/lib/tap.h"

int main(void)
{
	char word[80];

	eq_int(near_distance("commit", "commit", false), 0, "the same word");
	eq_int(near_distance("comit", "commit", false), 1, "a letter left out");
	eq_int(near_distance("commmit", "commit", false), 1, "one too many");
	eq_int(near_distance("comnit", "commit", false), 1, "another one");
	eq_int(near_distance("cmomit", "commit", false), 2, "two in the wrong order");
	eq_int(near_distance("", "log", false), 3, "nothing given");
	eq_int(near_distance("log", "", false), 3, "nothing to compare with");
	eq_int(near_distance("README", "readme", false), 6, "case counts");
	eq_int(near_distance("README", "readme", true), 0, "unless folded");
	memset(word, 'a', sizeof(word));
	word[63] = 0;
	eq_int(near_distance(word, word, false), 0, "the longest word");
	word[63] = 'a';
	word[64] = 0;
	eq_int(near_distance(word, word, false), NEAR_FAR, "a longer one is far from all");
	eq_int(near_distance("a", word, false), NEAR_FAR, "on either side");
	return tap_done();
}
