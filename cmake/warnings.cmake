# reprise_defaults(target): what every target of ours is built with.
function(reprise_defaults target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror
                                           $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
endfunction()

# reprise_runtime_free(target): code that runs inside hooks: no exceptions, no RTTI, no guarded statics, initial-exec TLS, no C++ runtime.
function(reprise_runtime_free target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions -fno-rtti -fno-threadsafe-statics> -ftls-model=initial-exec)
endfunction()
