//! Values that the caller chooses for random fields, such as the table suffix of a clearing house's
//! IDs.

use super::decode::too_large;
use super::{Field, Layout, LayoutError, Role};

/// A value for a random field of a layout. An application may choose the value, because IDs are
/// unique without their random fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChosenField {
    field: Field,
    value: u64,
    last_id: u64,
}

impl ChosenField {
    /// Returns an ID of this layout with the chosen value in place of the random one.
    ///
    /// # Errors
    /// Returns an error if the ID is above the layout's last ID, and so belongs to another layout.
    pub fn set(&self, id: u64) -> Result<u64, LayoutError> {
        if id > self.last_id {
            return Err(too_large(id, self.last_id));
        }
        Ok(id - self.field.value_in(id) * self.field.weight() + self.value * self.field.weight())
    }
}

impl Layout {
    /// Chooses the value of a random field.
    ///
    /// # Errors
    /// Returns an error if the layout has no random field of this name, or if the value is too
    /// large for the field.
    pub fn choose(&self, name: &str, value: u64) -> Result<ChosenField, LayoutError> {
        let random: Vec<&Field> = self.fields().iter().filter(|field| field.role() == Role::Random).collect();
        let Some(&field) = random.iter().find(|field| field.name() == name) else {
            let random = random.iter().map(|field| field.name().to_owned()).collect();
            return Err(LayoutError::NotRandom { name: name.to_owned(), random });
        };
        if value >= field.values() {
            let most = field.values() - 1;
            return Err(LayoutError::ChosenTooLarge { field: name.to_owned(), value, most });
        }
        Ok(ChosenField { field: field.clone(), value, last_id: self.last_id() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_value_replaces_the_random_one() {
        let clearing = Layout::resolve("clearing").unwrap();
        let table = clearing.choose("table", 316).unwrap();
        assert_eq!(table.set(1613024787541981000), Ok(1613024787541981316));
        assert_eq!(table.set(1613024787541981999), Ok(1613024787541981316));
        assert_eq!(clearing.choose("table", 0).unwrap().set(1613024787541981316), Ok(1613024787541981000));
        assert!(clearing.choose("table", 999).unwrap().set(1 << 63).is_err());
        // Here the chosen random field is above another random field.
        let two = Layout::resolve("time:41,sequence:10,a:1d:random,b:2d:random").unwrap();
        assert_eq!(two.choose("a", 7).unwrap().set(5_123), Ok(5_723));
    }

    #[test]
    fn only_random_fields_can_be_chosen() {
        let clearing =
            Layout::resolve("time:13d,region:1d:constant(4),sequence:1d,machine:1d,table:3d:random").unwrap();
        let refusal = |name: &str, value| clearing.choose(name, value).unwrap_err().to_string();
        for name in ["time", "sequence", "machine", "region", "tables"] {
            let expected = "is not a random field of this layout; its random fields: table";
            assert_eq!(refusal(name, 1), format!("{name:?} {expected}"));
        }
        assert_eq!(refusal("table", 1000), "found table=1000, and table is a number from 0 to 999");
        let twitter = Layout::resolve("twitter").unwrap();
        assert!(twitter.choose("table", 1).unwrap_err().to_string().ends_with("its random fields: none"));
    }
}
