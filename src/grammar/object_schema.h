// SPDX-License-Identifier: Apache-2.0
// The objects that JSON Schemas allow, as a part of a grammar: in JSON, or as the arguments of a
// call in Python.
//
// Threading: a free function.
#pragma once

#include "grammar/nfa.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_places.h"
#include "grammar/value_spelling.h"

namespace heddle::grammar {

// Adds the objects that all of the schemas allow; adds nothing if they allow none. Schemas of
// property values become separate places. A keyword that cannot be enforced is an error of
// `places`.
void add_objects(SchemaPlaces& places, const ObjectSpelling& spelling, NfaState from,
                 const Schemas& schemas, NfaState to);

}  // namespace heddle::grammar
