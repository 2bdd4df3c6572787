# SPDX-License-Identifier: Apache-2.0
# Unpacks the weights of models/heddle-tiny, which the repository holds compressed, wherever they are missing or older
# than their archive. They are renamed into place when they are whole, so that an interrupted run leaves none half.
block()
  set(model ${CMAKE_CURRENT_SOURCE_DIR}/models/heddle-tiny)
  set(archive ${model}-weights.tar.xz)
  set(weights model-00001-of-00002.safetensors model-00002-of-00002.safetensors)
  foreach(name IN LISTS weights)
    if(${archive} IS_NEWER_THAN ${model}/${name})  # or there is none
      set(missing ON)
    endif()
  endforeach()
  if(missing)
    message(STATUS "Unpacking the weights of models/heddle-tiny")
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${model}/unpacked TOUCH)
    foreach(name IN LISTS weights)
      file(RENAME ${model}/unpacked/${name} ${model}/${name})
    endforeach()
    file(REMOVE_RECURSE ${model}/unpacked)
  endif()
endblock()
