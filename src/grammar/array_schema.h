// SPDX-License-Identifier: Apache-2.0
// The arrays that JSON Schemas allow, as a part of a grammar.
//
// Threading: a free function.
#pragma once

#include "grammar/nfa.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_places.h"

namespace heddle::grammar {

// Adds the arrays that all of `schemas` allow; adds nothing if they allow none. Schemas of items
// become separate places. A keyword that cannot be enforced is an error of `places`. The number of
// states does not depend on minItems and maxItems.
void add_arrays(SchemaPlaces& places, NfaState from, const Schemas& schemas, NfaState to);

}  // namespace heddle::grammar
