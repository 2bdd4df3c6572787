// SPDX-License-Identifier: Apache-2.0
// The lists that JSON Schemas allow, as a part of a grammar.
//
// Threading: a free function.
#pragma once

#include "grammar/nfa.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_places.h"

namespace heddle::grammar {

// Adds the lists that are valid by all of the schemas; nothing where there are none. Their items
// are places of their own. A keyword that cannot be kept to is an error of `places`. States do not
// depend on how many items there may or must be.
void add_arrays(SchemaPlaces& places, NfaState from, const Schemas& schemas, NfaState to);

}  // namespace heddle::grammar
