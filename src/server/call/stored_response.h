// SPDX-License-Identifier: Apache-2.0
// StoredResponse: an answer of /v1/responses, as ResponseStore stores it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace heddle::server {

struct StoredResponse {
  // The size of one delta of a streamed response: its bytes of text and its number of log
  // probabilities.
  struct Cut {
    uint32_t num_bytes = 0;
    uint32_t num_logprobs = 0;
  };

  std::string body;  // body with which a GET for the response is answered
  // The items of the chat before the answer, as a list without instructions. Shared by a running
  // response, its final version and the call, which ends on another thread.
  std::shared_ptr<const nlohmann::ordered_json> input;
  nlohmann::ordered_json output;  // list of the answer's items; null while there are none
  size_t input_bytes = 0;         // size of `input` as JSON
  std::string holder;             // name of the key that may see the response; "" without one
  bool is_running = false;        // runs in the background; its final version will replace it
  std::vector<Cut> cuts = {};     // deltas of all items in order; empty: it was not streamed
};

}  // namespace heddle::server
