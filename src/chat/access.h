// SPDX-License-Identifier: Apache-2.0
// Reaching into values: attributes, items, slices, iteration and length.
//
// An attribute is a method of the type, else an item of that name; for an item the order is
// reversed. No attribute leads out of the data, and a method that would change a list or a dict is
// an undefined value that says so when it is used.
#pragma once

#include <string_view>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// A missing attribute or item is undefined, with a reason. Error: `object` itself is undefined.
Result<Value> get_attribute(Budget* budget, const Value& object, std::string_view name);
Result<Value> get_item(Budget* budget, const Value& object, const Value& key);

// Follows a path such as "details.priority" or "0", the attribute argument of filters. A missing
// item is replaced by `otherwise`, if given.
Result<Value> get_path(Budget* budget, const Value& object, const Value& path,
                       const Value* otherwise = nullptr);

// object[begin:end:step] with None or absent (nullptr) parts. Error: not sliceable, parts not
// integers.
Result<Value> get_slice(Budget* budget, const Value& object, const Value* begin, const Value* end,
                        const Value* step);

// The values a for loop runs over: items, keys, characters; nothing for undefined. A generator is
// used up. Error: not iterable.
Result<SequencePtr> iterate(Budget* budget, const Value& value);

// len(). Also of a generator, which Python refuses. Error: no length.
Result<int64_t> length_of(const Value& value);

}  // namespace heddle::chat
