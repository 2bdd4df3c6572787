// SPDX-License-Identifier: Apache-2.0
// RopeTable: the inverse frequencies of rotary positions that layers of one kind share. A model has
// one table for each distinct setting (Gemma 3: one for full and one for sliding layers). A layer
// selects its table by index, or does not rotate.
//
// Threading: values, used while a model loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/model_config.h"
#include "checkpoint/rope_config.h"
#include "graph/builder.h"
#include "models/model.h"

namespace heddle::models {

struct RopeTable {
  checkpoint::RopeConfig rope;
  int64_t head_dim = 0;   // width of the rotated heads
  bool reversed = false;  // rotates by the negative angles
};

// The config's tables: one for all layers, or two if sliding layers differ.
[[nodiscard]] std::vector<RopeTable> rope_tables_of(const checkpoint::ModelConfig& config);

// The factor on cosine and sine (yarn).
[[nodiscard]] double rope_factor(const RopeTable& table);

// Adds the tables, named with the prefix `scope` ("draft."): "inverse_frequencies", then
// "inverse_frequencies.1" and so on. A table is [R/2] f32, or [2, R/2] with longrope.
void derive_rope_tables(std::span<const RopeTable> tables, const std::string& scope,
                        DerivedWeights& derived);

// The first `count` tables, from the builder's current scope.
std::vector<graph::Value> rope_tables(graph::GraphBuilder& g, size_t count);

// Adds the constant "axes", [R/2] i32, if the config divides the rotated pairs among three axes of
// positions (checkpoint::rope_axes()).
void derive_rope_axes(const checkpoint::ModelConfig& config, DerivedWeights& derived);

// The factor on the queries at each position (RopeConfig::query_scale_beta), [T, 1] f32; an invalid
// Value if queries are not scaled.
graph::Value query_scale(graph::GraphBuilder& g, const checkpoint::RopeConfig& rope,
                         graph::Value positions);

}  // namespace heddle::models
