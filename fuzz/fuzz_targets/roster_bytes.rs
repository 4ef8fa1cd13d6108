//! Decode any bytes as a roster; what passes the check survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sjp_table::parts;

fuzz_target!(|data: &[u8]| {
    if let Ok(Ok(roster)) = parts::decode(data) {
        let bytes = parts::encode(&roster).expect("what was decoded can be encoded");
        let again = parts::decode(&bytes).expect("and decoded").expect("and is sound");
        assert_eq!(roster, again);
    }
});
